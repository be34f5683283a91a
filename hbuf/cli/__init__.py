"""One file a program: parse, call one op, print. What people see is decided here and nowhere below."""
