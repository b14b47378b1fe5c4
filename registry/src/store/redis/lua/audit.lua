-- Keeps an entry of the audit, if its conversation is there. What has expired goes, and of more than
-- the most what expires first; both keys go with the last entry.
-- KEYS: entries, expiries, conversation
-- ARGV: now, most, key, expiry, entry
-- Returns 1 if it is kept, else 0.
if redis.call('HEXISTS', KEYS[3], 'seq') == 0 then return 0 end
local function forget(keys)
  for _, key in ipairs(keys) do
    redis.call('HDEL', KEYS[1], key)
    redis.call('ZREM', KEYS[2], key)
  end
end
forget(redis.call('ZRANGE', KEYS[2], '-inf', ARGV[1], 'BYSCORE'))
redis.call('HSET', KEYS[1], ARGV[3], ARGV[5])
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[3])
forget(redis.call('ZRANGE', KEYS[2], 0, -1 - ARGV[2]))
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
for i = 1, 2 do redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', last / 1000 + 1)) end
return 1
