#!lua flags=no-writes
-- The locks' metrics for redis_exporter (--script=prlock.lua): each field of INFO prlock under its own name, and the age
-- of the oldest lock.

local metrics = {}
for name, value in string.gmatch(redis.call('INFO', 'prlock'), '(prlock_[%w_]+):(%d+)') do
    metrics[#metrics + 1] = name
    metrics[#metrics + 1] = value
end

-- The server keeps no order by age, so this looks at each lock of the database. Above this many the metric is left out:
-- a scrape must not hold the server up.
local looked_at_most = 1000
local locks = redis.call('PRLOCK.LIST', 'COUNT', looked_at_most + 1)
if #locks <= looked_at_most then
    local oldest_ms = 0
    for _, lock in ipairs(locks) do
        for i = 1, #lock, 2 do
            if lock[i] == 'held-ms' then oldest_ms = math.max(oldest_ms, lock[i + 1]) end
        end
    end
    metrics[#metrics + 1] = 'prlock_oldest_held_ms'
    metrics[#metrics + 1] = tostring(oldest_ms)
end
return metrics
