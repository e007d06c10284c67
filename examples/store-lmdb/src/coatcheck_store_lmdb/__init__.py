"""A store for coatcheck on LMDB: `App("lmdb:///var/lib/jobs.lmdb")`."""
