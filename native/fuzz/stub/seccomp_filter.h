/* Stands in for the compiled filter, which is loaded into nothing here. */
static struct sock_filter seccomp_filter[] = {{0, 0, 0, 0}};
