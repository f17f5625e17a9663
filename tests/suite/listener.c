/* Another module that answers every `prlock.release` by deleting the key, as a listener that meddles would. The functions
 * are asked for by name, so that no header of the server is needed. */
#include <string.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef int (*Listener)(RedisModuleCtx *, int, const char *, RedisModuleString *);

enum { CLASS_MODULE = 1 << 13 };

static int (*SetModuleAttribs)(RedisModuleCtx *, const char *, int, int);
static int (*SubscribeToKeyspaceEvents)(RedisModuleCtx *, int, Listener);
static RedisModuleCallReply *(*Call)(RedisModuleCtx *, const char *, const char *, ...);
static void (*FreeCallReply)(RedisModuleCallReply *);

static int heard(RedisModuleCtx *ctx, int class, const char *event, RedisModuleString *key) {
    (void)class;
    if (!strcmp(event, "prlock.release")) {
        RedisModuleCallReply *reply = Call(ctx, "DEL", "!s", key);
        if (reply) FreeCallReply(reply);
    }
    return 0;
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    /* The first field of a context gives the functions of the API. */
    int (*get_api)(const char *, void *) = (int (*)(const char *, void *))((void **)ctx)[0];
    (void)argv;
    (void)argc;
    get_api("RedisModule_SetModuleAttribs", (void *)&SetModuleAttribs);
    get_api("RedisModule_SubscribeToKeyspaceEvents", (void *)&SubscribeToKeyspaceEvents);
    get_api("RedisModule_Call", (void *)&Call);
    get_api("RedisModule_FreeCallReply", (void *)&FreeCallReply);
    SetModuleAttribs(ctx, "listener", 1, 1);
    return SubscribeToKeyspaceEvents(ctx, CLASS_MODULE, heard);
}
