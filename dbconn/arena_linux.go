package dbconn

// Else glibc gives each thread memory of its own, which grows page by page by a system
// call each, and a start is made of first allocations. SQLite asks for little at a time:
// on a lock of glibc's nobody waits long.

/*
#include <malloc.h>

#ifdef M_ARENA_MAX
__attribute__((constructor)) static void share_memory(void) { mallopt(M_ARENA_MAX, 1); }
#endif
*/
import "C"
