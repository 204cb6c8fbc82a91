package dbconn

// share_memory has all threads take memory from one place. Else glibc gives each its own,
// which grows by a system call a page: a start is made of first pages. SQLite asks for
// little at a time, so that no thread waits long for another.

/*
#include <malloc.h>

#ifdef M_ARENA_MAX
__attribute__((constructor)) static void share_memory(void) { mallopt(M_ARENA_MAX, 1); }
#endif
*/
import "C"
