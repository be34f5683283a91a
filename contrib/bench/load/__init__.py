"""The load: programs that ask a server, each in a process of its own, lean so that they are not what is measured.

Sockets and the standard library alone. A plan comes as JSON on standard input, for it may hold a token; what was
measured goes to standard output as JSON.
"""
