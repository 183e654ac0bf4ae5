"""Tests that run in the guest, on NVIDIA's driver: functions with claims (lab.claims)."""
