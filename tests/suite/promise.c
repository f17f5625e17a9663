/* Another module that is ready to wait: `promise.call command argument...` runs a command that may block and passes its
 * reply on when it comes; `promise.abort` gives the last such wait up and says whether there was one. The functions are asked for by name, so that no
 * header of the server is needed; Redis 7.0 has not all of them and refuses the module. */
#include <stddef.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef struct RedisModuleBlockedClient RedisModuleBlockedClient;
typedef int (*Command)(RedisModuleCtx *, RedisModuleString **, int);
typedef void (*OnUnblock)(RedisModuleCtx *, RedisModuleCallReply *, void *);

enum { REPLY_PROMISE = 12 };

static int (*CreateCommand)(RedisModuleCtx *, const char *, Command, const char *, int, int, int);
static int (*SetModuleAttribs)(RedisModuleCtx *, const char *, int, int);
static const char *(*StringPtrLen)(const RedisModuleString *, size_t *);
static RedisModuleCallReply *(*Call)(RedisModuleCtx *, const char *, const char *, ...);
static int (*CallReplyType)(RedisModuleCallReply *);
static void (*CallReplyPromiseSetUnblockHandler)(RedisModuleCallReply *, OnUnblock, void *);
static int (*CallReplyPromiseAbort)(RedisModuleCallReply *, void **);
static RedisModuleBlockedClient *(*BlockClient)(RedisModuleCtx *, Command, Command, void *, long long);
static int (*UnblockClient)(RedisModuleBlockedClient *, void *);
static RedisModuleCtx *(*GetThreadSafeContext)(RedisModuleBlockedClient *);
static void (*FreeThreadSafeContext)(RedisModuleCtx *);
static int (*ReplyWithCallReply)(RedisModuleCtx *, RedisModuleCallReply *);
static int (*ReplyWithError)(RedisModuleCtx *, const char *);
static int (*ReplyWithLongLong)(RedisModuleCtx *, long long);
static void (*FreeCallReply)(RedisModuleCallReply *);

static RedisModuleCallReply *waiting;

static void answer(RedisModuleBlockedClient *client, RedisModuleCallReply *reply) {
    RedisModuleCtx *ctx = GetThreadSafeContext(client);
    if (reply) ReplyWithCallReply(ctx, reply);
    else ReplyWithError(ctx, "ERR given up");
    FreeThreadSafeContext(ctx);
    UnblockClient(client, NULL);
}

static void forget_waiting(void) {
    if (waiting) FreeCallReply(waiting);
    waiting = NULL;
}

static void on_unblock(RedisModuleCtx *ctx, RedisModuleCallReply *reply, void *client) {
    (void)ctx;
    answer(client, reply);
    FreeCallReply(reply);
    forget_waiting();
}

static int call(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 2) return ReplyWithError(ctx, "ERR which command?");
    RedisModuleCallReply *reply = Call(ctx, StringPtrLen(argv[1], NULL), "!Kv", argv + 2, (size_t)(argc - 2));
    if (!reply) return ReplyWithError(ctx, "ERR no reply");
    if (CallReplyType(reply) != REPLY_PROMISE) {
        ReplyWithCallReply(ctx, reply);
        FreeCallReply(reply);
        return 0;
    }
    forget_waiting();
    waiting = reply;
    CallReplyPromiseSetUnblockHandler(reply, on_unblock, BlockClient(ctx, NULL, NULL, NULL, 0));
    return 0;
}

static int abort_wait(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    void *client = NULL;
    (void)argv;
    (void)argc;
    if (!waiting || CallReplyPromiseAbort(waiting, &client) != 0) return ReplyWithLongLong(ctx, 0);
    forget_waiting();
    answer(client, NULL);
    return ReplyWithLongLong(ctx, 1);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    /* The first field of a context gives the functions of the API. */
    int (*get_api)(const char *, void *) = (int (*)(const char *, void *))((void **)ctx)[0];
    (void)argv;
    (void)argc;
#define WANT(name) if (get_api("RedisModule_" #name, (void *)&name)) return 1
    WANT(CreateCommand);
    WANT(SetModuleAttribs);
    WANT(StringPtrLen);
    WANT(Call);
    WANT(CallReplyType);
    WANT(CallReplyPromiseSetUnblockHandler);
    WANT(CallReplyPromiseAbort);
    WANT(BlockClient);
    WANT(UnblockClient);
    WANT(GetThreadSafeContext);
    WANT(FreeThreadSafeContext);
    WANT(ReplyWithCallReply);
    WANT(ReplyWithError);
    WANT(ReplyWithLongLong);
    WANT(FreeCallReply);
    SetModuleAttribs(ctx, "promise", 1, 1);
    if (CreateCommand(ctx, "promise.call", call, "write", 0, 0, 0)) return 1;
    return CreateCommand(ctx, "promise.abort", abort_wait, "", 0, 0, 0);
}
