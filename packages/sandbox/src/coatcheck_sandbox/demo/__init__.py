"""The demo: scanned pages through a provider's API, a worker killed in the middle, nothing lost or paid twice."""
