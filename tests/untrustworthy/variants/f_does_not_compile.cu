// Calls what is nowhere declared.
int broken() { return no_such_function(); }
