/*
 * Stands between SQLite and libc (LD_PRELOAD). It counts what changes the files below
 * the folder FAULTS_DIR, but for -shm, which no restart reads, and -lock, whose content
 * means nothing; fails the operation that struct control (a file, FAULTS_CONTROL, which the test
 * maps too) says; and writes all of them into the journal FAULTS_JOURNAL, from which the
 * test makes the files as a power cut would have left them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { WRITE, SYNC, TRUNCATE, UNLINK, KINDS };

/* The test has the same fields in the same order: faults_test.go. */
struct control {
	int64_t count[KINDS]; /* done so far */
	int64_t entries;      /* of the journal */
	int64_t kinds;        /* a bit for each kind that may fail */
	int64_t at;           /* the first that does, counted over these kinds; 0: none */
	int64_t persistent;   /* and all after it */
	int64_t error;        /* errno; SHORT or CRASH */
	int64_t seen;         /* operations of these kinds since at was set */
	int64_t hits;         /* failed so far */
};
enum { SHORT = -1, CRASH = -2, CRASH_AFTER = -3 };

/* What an entry of the journal begins with; path and data follow. */
struct entry { int64_t kind, offset, path, data; };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct control *control;
static const char *dir;
static int journal = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
	const char *path = getenv("FAULTS_CONTROL"), *to = getenv("FAULTS_JOURNAL");
	dir = getenv("FAULTS_DIR");
	int fd = path && dir ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (control == MAP_FAILED)
		abort();
	close(fd);
	if (to)
		journal = open(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int watched(const char *path) {
	return control && strncmp(path, dir, strlen(dir)) == 0 && !strstr(path, "-shm") && !strstr(path, "-lock") &&
	       !strstr(path, " (deleted)");
}

/* Gives the path of a descriptor, NULL when the file does not count. */
static const char *path_of(int fd, char *path) {
	char link[40];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = control ? readlink(link, path, PATH_MAX) : -1;
	if (n < 0)
		return NULL;
	path[n] = 0;
	return watched(path) ? path : NULL;
}

static void record(enum kind kind, const char *path, int64_t offset, const void *data, size_t size) {
	struct entry e = { kind, offset, strlen(path), size };
	struct iovec parts[] = { { &e, sizeof e }, { (void *)path, e.path }, { (void *)data, size } };
	control->count[kind]++;
	control->entries++;
	if (journal >= 0 && writev(journal, parts, 3) < 0)
		abort();
}

/* Says what is to happen to an operation: 0 nothing, else errno, SHORT or CRASH. */
static int fault(enum kind kind) {
	if (!control->at || !(control->kinds >> kind & 1))
		return 0;
	int64_t n = ++control->seen;
	if (n < control->at || (n > control->at && !control->persistent))
		return 0;
	control->hits++;
	if (control->error == CRASH)
		_exit(137);
	return control->error;
}

/* Does an operation: counted, perhaps failed, recorded. A short write writes half and says so. */
#define DO(kind, path, offset, data, size, call, shortened)                \
	do {                                                                      \
		pthread_mutex_lock(&mutex);                                       \
		int e = fault(kind);                                        \
		__typeof__(call) done = -1;                                       \
		if (e == 0 || e == CRASH_AFTER) {                                 \
			if ((done = (call)) >= 0)                                 \
				record(kind, path, offset, data, size); \
			if (e)                                                    \
				_exit(137);                                       \
			e = errno;                                                \
		} else if (e == SHORT && kind == WRITE && size > 1) {             \
			if ((done = (shortened)) >= 0)                            \
				record(kind, path, offset, data, done);    \
			e = errno;                                                \
		}                                                                 \
		pthread_mutex_unlock(&mutex);                                     \
		errno = e < 0 ? ENOSPC : e;                                       \
		return done;                                                      \
	} while (0)

/* libc has each call under two names. */
#define CALL(name, result, parameters, kind, offset, data, size, whole, half) \
	result name parameters {                                              \
		char buffer[PATH_MAX + 1];                                    \
		const char *path = path_of(fd, buffer);                       \
		if (!path)                                                    \
			return REAL(name)whole;                               \
		DO(kind, path, offset, data, size, REAL(name)whole, REAL(name)half); \
	}
#define PWRITE(name) CALL(name, ssize_t, (int fd, const void *data, size_t size, off_t offset), \
	WRITE, offset, data, size, (fd, data, size, offset), (fd, data, size / 2, offset))
#define FTRUNCATE(name) CALL(name, int, (int fd, off_t size), TRUNCATE, size, NULL, 0, (fd, size), (fd, size))
#define FSYNC(name) CALL(name, int, (int fd), SYNC, 0, NULL, 0, (fd), (fd))
PWRITE(pwrite)
PWRITE(pwrite64)
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)
FSYNC(fsync)
FSYNC(fdatasync)
CALL(write, ssize_t, (int fd, const void *data, size_t size), WRITE, lseek(fd, 0, SEEK_CUR), data, size,
     (fd, data, size), (fd, data, size / 2))

int unlink(const char *path) {
	if (!watched(path))
		return REAL(unlink)(path);
	DO(UNLINK, path, 0, NULL, 0, REAL(unlink)(path), 0);
}
