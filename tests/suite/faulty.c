/* A module with the faults that `make memcheck` looks for, each in its load, which it then refuses: `read` reads memory that
 * was given back, `lose` forgets some, `branch` decides by a byte that was never set. The functions are asked for by name,
 * so that no header of the server is needed. */
#include <string.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;

static void *(*Alloc)(size_t);
static void (*Free)(void *);
static const char *(*StringPtrLen)(const RedisModuleString *, size_t *);
static volatile int seen;

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    /* The first field of a context gives the functions of the API. */
    int (*get_api)(const char *, void *) = (int (*)(const char *, void *))((void **)ctx)[0];
    get_api("RedisModule_Alloc", (void *)&Alloc);
    get_api("RedisModule_Free", (void *)&Free);
    get_api("RedisModule_StringPtrLen", (void *)&StringPtrLen);
    const char *fault = argc ? StringPtrLen(argv[0], NULL) : "none";
    volatile char *memory = Alloc(100);
    if (!strcmp(fault, "branch") && memory[7]) seen = 1;
    if (strcmp(fault, "lose")) Free((void *)memory);
    if (!strcmp(fault, "read")) seen = memory[7];
    memory = NULL;
    return 1;
}
