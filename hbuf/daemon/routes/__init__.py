"""A module for each group of requests. A route makes plain values of a request, calls ops, encodes the answer."""
