/* Another module: `caller.run command argument...` runs a command through the module API, as nobody's user and without a
 * connection behind it; `!` lets what it replicates through. `caller.remove xkey` removes `key` by the functions for keys,
 * a name that no command says. `caller.empties key` deletes a key and then says whether it is there. The functions are asked
 * for by name, so that no header of the server is needed. */
#include <stddef.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef struct RedisModuleKey RedisModuleKey;
typedef int (*Command)(RedisModuleCtx *, RedisModuleString **, int);

static int (*CreateCommand)(RedisModuleCtx *, const char *, Command, const char *, int, int, int);
static int (*SetModuleAttribs)(RedisModuleCtx *, const char *, int, int);
static const char *(*StringPtrLen)(const RedisModuleString *, size_t *);
static RedisModuleCallReply *(*Call)(RedisModuleCtx *, const char *, const char *, ...);
static int (*ReplyWithCallReply)(RedisModuleCtx *, RedisModuleCallReply *);
static int (*ReplyWithError)(RedisModuleCtx *, const char *);
static void (*FreeCallReply)(RedisModuleCallReply *);
static RedisModuleString *(*CreateString)(RedisModuleCtx *, const char *, size_t);
static void (*FreeString)(RedisModuleCtx *, RedisModuleString *);
static RedisModuleKey *(*OpenKey)(RedisModuleCtx *, RedisModuleString *, int);
static int (*DeleteKey)(RedisModuleKey *);
static void (*CloseKey)(RedisModuleKey *);
static int (*ReplyWithLongLong)(RedisModuleCtx *, long long);

static int run(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2) return ReplyWithError(ctx, "ERR which command?");
    RedisModuleCallReply *reply = Call(ctx, StringPtrLen(argv[1], NULL), "!v", argv + 2, (size_t)(argc - 2));
    if (!reply) return ReplyWithError(ctx, "ERR no reply");
    ReplyWithCallReply(ctx, reply);
    FreeCallReply(reply);
    return 0;
}

static int removes(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    size_t len = 0;
    const char *word = argc == 2 ? StringPtrLen(argv[1], &len) : NULL;
    if (len < 2) return ReplyWithError(ctx, "ERR which key?");
    RedisModuleString *name = CreateString(NULL, word + 1, len - 1);
    RedisModuleKey *key = OpenKey(ctx, name, 2 /* for writing */);
    DeleteKey(key);
    CloseKey(key);
    FreeString(NULL, name);
    return ReplyWithLongLong(ctx, 1);
}

static int empties(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return ReplyWithError(ctx, "ERR which key?");
    RedisModuleCallReply *reply = Call(ctx, "DEL", "!s", argv[1]);
    if (reply) FreeCallReply(reply);
    reply = Call(ctx, "EXISTS", "s", argv[1]);
    if (!reply) return ReplyWithError(ctx, "ERR no reply");
    ReplyWithCallReply(ctx, reply);
    FreeCallReply(reply);
    return 0;
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    /* The first field of a context gives the functions of the API. */
    int (*get_api)(const char *, void *) = (int (*)(const char *, void *))((void **)ctx)[0];
    (void)argv;
    (void)argc;
    get_api("RedisModule_CreateCommand", (void *)&CreateCommand);
    get_api("RedisModule_SetModuleAttribs", (void *)&SetModuleAttribs);
    get_api("RedisModule_StringPtrLen", (void *)&StringPtrLen);
    get_api("RedisModule_Call", (void *)&Call);
    get_api("RedisModule_ReplyWithCallReply", (void *)&ReplyWithCallReply);
    get_api("RedisModule_ReplyWithError", (void *)&ReplyWithError);
    get_api("RedisModule_FreeCallReply", (void *)&FreeCallReply);
    get_api("RedisModule_CreateString", (void *)&CreateString);
    get_api("RedisModule_FreeString", (void *)&FreeString);
    get_api("RedisModule_OpenKey", (void *)&OpenKey);
    get_api("RedisModule_DeleteKey", (void *)&DeleteKey);
    get_api("RedisModule_CloseKey", (void *)&CloseKey);
    get_api("RedisModule_ReplyWithLongLong", (void *)&ReplyWithLongLong);
    SetModuleAttribs(ctx, "caller", 1, 1);
    return CreateCommand(ctx, "caller.run", run, "write", 0, 0, 0) ||
           CreateCommand(ctx, "caller.remove", removes, "write", 0, 0, 0) ||
           CreateCommand(ctx, "caller.empties", empties, "write", 0, 0, 0);
}
