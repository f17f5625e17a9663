/* Preloaded into a server with an append-only file: notes in the file "syncs" of the server's folder what a power cut would
 * leave of it, for whoever wants to cut it there. All times are monotonic, in microseconds. Only one thread writes to the
 * file, and one at a time syncs it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
    /* When the last write began that the operating system has by now. */
    uint64_t written_us;
    /* How long the file was when the last sync began that is done by now, and the same for what was in it. */
    uint64_t synced_bytes, synced_written_us;
    uint64_t longest_sync_us;
} *note;

static int file = -1;

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* A new life of the server has written nothing yet. */
__attribute__((constructor)) static void begin(void) {
    int fd = open("syncs", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*note)) != 0) return;
    void *memory = mmap(NULL, sizeof(*note), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) note = memory;
}

static int is_aof(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path));
    return length > 9 && memcmp(path + length - 9, ".incr.aof", 9) == 0;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    if (note && file < 0 && is_aof(fd)) file = fd;
    int is_file = note && fd == file;
    uint64_t began_us = is_file ? now_us() : 0;
    ssize_t status = syscall(SYS_write, fd, bytes, length);
    if (is_file && status == (ssize_t)length) __atomic_store_n(&note->written_us, began_us, __ATOMIC_SEQ_CST);
    return status;
}

int fdatasync(int fd) {
    struct stat before;
    int is_file = note && fd == file;
    uint64_t written_us = is_file ? __atomic_load_n(&note->written_us, __ATOMIC_SEQ_CST) : 0;
    is_file = is_file && fstat(fd, &before) == 0;
    uint64_t began_us = now_us();
    int status = (int)syscall(SYS_fdatasync, fd);
    if (is_file && status == 0) {
        uint64_t took_us = now_us() - began_us;
        if (took_us > note->longest_sync_us) note->longest_sync_us = took_us;
        /* In this order: an end in between leaves more of the file than it tells. */
        __atomic_store_n(&note->synced_bytes, (uint64_t)before.st_size, __ATOMIC_SEQ_CST);
        __atomic_store_n(&note->synced_written_us, written_us, __ATOMIC_SEQ_CST);
    }
    return status;
}
