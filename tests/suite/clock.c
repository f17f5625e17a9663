/* A wall clock that a test sets, preloaded into a server. It is off the true time by as many seconds as the text in the
 * file "clock" of the server's folder says; without the file it is right. The monotonic clock stays true, as it does when
 * somebody sets a real clock. Only system calls and nothing that allocates: the server's allocator asks for the time while
 * it sets itself up, before there is any memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset_s(void) {
    char text[24];
    long long value = 0;
    int fd = open("clock", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, sizeof(text));
    close(fd);
    for (ssize_t i = 0; i < length; i++)
        if (text[i] >= '0' && text[i] <= '9') value = value * 10 + (text[i] - '0');
    return length > 0 && text[0] == '-' ? -value : value;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_s();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return status;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
