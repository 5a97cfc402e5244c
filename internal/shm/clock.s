// Functions without a body, such as Nanotime, want a file of assembly in the package.
