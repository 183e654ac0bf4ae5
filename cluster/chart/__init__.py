"""The Helm chart, made from the plain manifests."""
