"""Nodes from HAMi to mgpu, one by one, and back."""
