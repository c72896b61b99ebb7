"""Hibernate idle sessions: end an agent whose resume is proven, and resume it on its next use.

`hibernate.hibernate` and `hibernate.check_resumable` are the entry points. `obstacles` finds what runs.
"""
