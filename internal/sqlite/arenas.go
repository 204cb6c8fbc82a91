package sqlite

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>

// glibc gives each thread an arena of its own, and what SQLite frees in one is of no use to another: ten threads
// hold 15 MB more than they use. One arena is as fast, because few threads are in SQLite at a time.
__attribute__((constructor)) static void one_arena(void) { mallopt(M_ARENA_MAX, 1); }
#endif
*/
import "C"
