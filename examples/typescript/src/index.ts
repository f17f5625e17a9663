export { Commands, type ClaimTerms, type Grant, type LockInfo } from "./commands.js";
export type { Connection } from "./connection.js";
export { LockBusy, LockError, LockLost, type Code } from "./errors.js";
export { fromIoredis, fromIoredisCluster, type IoredisClient, type IoredisCluster } from "./ioredis.js";
export { LockCache } from "./lock-cache.js";
export type { Lock } from "./lock.js";
export { Locks, type LockOptions, type LocksOptions } from "./locks.js";
export { fromNodeRedis, fromNodeRedisCluster, type NodeRedisClient, type NodeRedisCluster } from "./node-redis.js";
