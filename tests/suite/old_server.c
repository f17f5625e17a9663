/* A server that is too old: it loads the module at argv[1] and offers all functions of the API but those named behind it;
 * `all` leaves out every function that is not one of its own five. Whatever else the module calls ends this program, since
 * a module that is refused must have touched nothing. It prints the module's log and ends with what OnLoad returns. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*Load)(void *ctx, void **argv, int argc);

static char **missing;
static int missing_count;

static int is_missing(const char *name) {
    for (int index = 0; index < missing_count; index++) {
        if (!strcmp(missing[index], "all") || !strcmp(missing[index], name)) return 1;
    }
    return 0;
}

static void must_not_be_called(void) {
    puts("a function was called");
    fflush(stdout);
    abort();
}

static void write_log(void *ctx, const char *level, const char *format, ...) {
    va_list args;
    (void)ctx;
    printf("%s: ", level);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static int is_name_busy(const char *name) {
    (void)name;
    return 0;
}

static void set_attributes(void *ctx, const char *name, int version, int api_version) {
    (void)ctx;
    printf("%s, version %d, API %d\n", name, version, api_version);
}

static int get_api(const char *name, void **function) {
    if (!strcmp(name, "RedisModule_Log")) *function = (void *)write_log;
    else if (!strcmp(name, "RedisModule_IsModuleNameBusy")) *function = (void *)is_name_busy;
    else if (!strcmp(name, "RedisModule_SetModuleAttribs")) *function = (void *)set_attributes;
    else if (!strcmp(name, "RedisModule_Alloc")) *function = (void *)malloc;
    else if (!strcmp(name, "RedisModule_Free")) *function = (void *)free;
    else if (is_missing(name)) return 1;
    else *function = (void *)must_not_be_called;
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    missing = argv + 2;
    missing_count = argc - 2;
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        puts(dlerror());
        return 2;
    }
    Load load = (Load)dlsym(library, "RedisModule_OnLoad");
    /* The first field of a context gives the functions of the API. */
    void *ctx[] = {(void *)get_api};
    return load ? load(ctx, NULL, 0) : 2;
}
