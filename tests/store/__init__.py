"""The store under faults. A package, so that its tests can share the modules that make faults and check afterwards."""
