"""Clients and hosts: frames on a socket, the host's lock, its server (`server`) and client (`client`, `connect`)."""
