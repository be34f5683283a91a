"""One module for each group of requests. A route turns a request into plain values, calls ops, and encodes the answer."""
