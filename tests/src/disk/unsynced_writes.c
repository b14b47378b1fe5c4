/* Preloaded into a store's process: logs how to undo every write to a file below UNSYNCED_DIR until the
   file has been synced, and refuses writes as a full disk does while the file DISK_FULL exists. The log
   of FILE is FILE.unsynced; a record is (offset, old size, bytes) as three 64-bit numbers, then those
   bytes as they were before. See disk.rs, which loses the writes. */
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
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

/* A forked child has only the thread that forked, so that another one's lock is never released. */
static void after_fork(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void start(void) {
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    pthread_atfork(NULL, NULL, after_fork);
}

/* Whether the descriptor is a regular file below UNSYNCED_DIR; its path without room for a suffix. */
static int watched(int fd, char path[PATH_MAX]) {
    const char *dir = getenv("UNSYNCED_DIR");
    if (!dir || !real_fdatasync) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 16);
    if (length <= 0) return 0;
    path[length] = 0;
    if (strncmp(path, dir, strlen(dir)) != 0 || strstr(path, "/temp-")) return 0;
    /* Who serves a slot of a Redis Cluster is no data: without it two servers name each other, until an
       operator mends it. */
    if (strstr(path, "/nodes.conf")) return 0;
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

static int is_full(void) {
    const char *flag = getenv("DISK_FULL");
    return flag && access(flag, F_OK) == 0;
}

/* Logs how to undo a change of `length` bytes at `offset`. */
static void log_undo(int fd, char *path, off_t offset, size_t length) {
    struct stat status;
    if (fstat(fd, &status) != 0) return;
    uint64_t old_size = (uint64_t)status.st_size, bytes = 0;
    if ((uint64_t)offset < old_size) {
        bytes = old_size - (uint64_t)offset;
        if (bytes > length) bytes = length;
    }
    uint64_t head[3] = {(uint64_t)offset, old_size, bytes};
    size_t size = sizeof head + bytes;
    char *record = malloc(size);
    if (!record) abort();
    memcpy(record, head, sizeof head);
    if (bytes > 0) {
        int reader = open(path, O_RDONLY | O_CLOEXEC);
        if (reader < 0 || pread(reader, record + sizeof head, bytes, offset) != (ssize_t)bytes) abort();
        close(reader);
    }
    strcat(path, ".unsynced");
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0 || real_write(log, record, size) != (ssize_t)size) abort();
    close(log);
    free(record);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    char path[PATH_MAX];
    if (!real_write) real_write = dlsym(RTLD_NEXT, "write");
    if (!watched(fd, path)) return real_write(fd, bytes, length);
    if (is_full()) return errno = ENOSPC, -1;
    pthread_mutex_lock(&lock);
    off_t offset = lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    log_undo(fd, path, offset, length);
    ssize_t written = real_write(fd, bytes, length);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    char path[PATH_MAX];
    if (!real_pwrite) real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    if (!watched(fd, path)) return real_pwrite(fd, bytes, length, offset);
    if (is_full()) return errno = ENOSPC, -1;
    pthread_mutex_lock(&lock);
    log_undo(fd, path, offset, length);
    ssize_t written = real_pwrite(fd, bytes, length, offset);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    return pwrite(fd, bytes, length, offset);
}

int ftruncate(int fd, off_t length) {
    char path[PATH_MAX];
    if (!real_ftruncate) real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
    if (!watched(fd, path)) return real_ftruncate(fd, length);
    if (is_full()) return errno = ENOSPC, -1;
    pthread_mutex_lock(&lock);
    log_undo(fd, path, length, SIZE_MAX);
    int result = real_ftruncate(fd, length);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

/* The lock keeps writes out that the sync may or may not cover. */
static int sync_and_forget(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    if (!watched(fd, path)) return real(fd);
    pthread_mutex_lock(&lock);
    int result = real(fd);
    if (result == 0) {
        strcat(path, ".unsynced");
        if (truncate(path, 0) != 0 && errno != ENOENT) abort();
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) {
    if (!real_fsync) real_fsync = dlsym(RTLD_NEXT, "fsync");
    return sync_and_forget(fd, real_fsync);
}

int fdatasync(int fd) {
    if (!real_fdatasync) real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    return sync_and_forget(fd, real_fdatasync);
}
