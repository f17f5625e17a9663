/* Another module that is told of each key just before it is deleted (since Redis 7.2 and Valkey 8), and when that is `first`
 * deletes `second` in database 3 right then, within the deletion. (In the same database that would be unsafe: the server has
 * a pointer to the first in its table.) The functions are asked for by name, so that no header of the server is needed. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef struct RedisModuleKey RedisModuleKey;
typedef struct {
    uint64_t id, version;
} Event;
typedef struct {
    uint64_t version;
    RedisModuleKey *key;
} KeyInfo;
typedef void (*Listener)(RedisModuleCtx *, Event, uint64_t, void *);

enum { EVENT_KEY = 17, KEY_DELETED = 0 };

static int (*SetModuleAttribs)(RedisModuleCtx *, const char *, int, int);
static int (*SubscribeToServerEvent)(RedisModuleCtx *, Event, Listener);
static const RedisModuleString *(*GetKeyNameFromModuleKey)(RedisModuleKey *);
static int (*GetSelectedDb)(RedisModuleCtx *);
static int (*SelectDb)(RedisModuleCtx *, int);
static const char *(*StringPtrLen)(const RedisModuleString *, size_t *);
static RedisModuleCallReply *(*Call)(RedisModuleCtx *, const char *, const char *, ...);
static void (*FreeCallReply)(RedisModuleCallReply *);

static void told(RedisModuleCtx *ctx, Event event, uint64_t what, void *data) {
    size_t len = 0;
    (void)event;
    const char *name = StringPtrLen(GetKeyNameFromModuleKey(((KeyInfo *)data)->key), &len);
    if (what != KEY_DELETED || len != 5 || memcmp(name, "first", 5)) return;
    int home = GetSelectedDb(ctx);
    SelectDb(ctx, 3);
    RedisModuleCallReply *reply = Call(ctx, "DEL", "c", "second");
    if (reply) FreeCallReply(reply);
    SelectDb(ctx, home);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    /* The first field of a context gives the functions of the API. */
    int (*get_api)(const char *, void *) = (int (*)(const char *, void *))((void **)ctx)[0];
    (void)argv;
    (void)argc;
    get_api("RedisModule_SetModuleAttribs", (void *)&SetModuleAttribs);
    get_api("RedisModule_SubscribeToServerEvent", (void *)&SubscribeToServerEvent);
    get_api("RedisModule_GetKeyNameFromModuleKey", (void *)&GetKeyNameFromModuleKey);
    get_api("RedisModule_GetSelectedDb", (void *)&GetSelectedDb);
    get_api("RedisModule_SelectDb", (void *)&SelectDb);
    get_api("RedisModule_StringPtrLen", (void *)&StringPtrLen);
    get_api("RedisModule_Call", (void *)&Call);
    get_api("RedisModule_FreeCallReply", (void *)&FreeCallReply);
    SetModuleAttribs(ctx, "remover", 1, 1);
    return SubscribeToServerEvent(ctx, (Event){EVENT_KEY, 1}, told);
}
