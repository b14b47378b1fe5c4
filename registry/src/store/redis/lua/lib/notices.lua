-- Library in front of the scripts that write what is owed to webhooks.
-- reindex: notes when the first queue of a webhook is due.
local function reindex(index, due, webhook)
  local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if first[1] then redis.call('ZADD', index, first[2], webhook)
  else redis.call('ZREM', index, webhook) end
end

-- write_owed: adds notices to the queues of a conversation. KEYS from `key`: index, counts, and for
--   each webhook: due, since, queue. ARGV from `at`: the number of webhooks; for each: webhook, id,
--   time, number of notices, and the notices. Returns the key and the argument after them.
local function write_owed(key, at)
  local index, counts, webhooks = KEYS[key], KEYS[key + 1], tonumber(ARGV[at])
  key, at = key + 2, at + 1
  for _ = 1, webhooks do
    local webhook, id, now, size = unpack(ARGV, at, at + 3)
    local due, since, queue = unpack(KEYS, key, key + 2)
    redis.call('RPUSH', queue, unpack(ARGV, at + 4, at + 3 + size))
    redis.call('ZADD', due, 'NX', now, id)
    redis.call('ZADD', since, 'NX', now, id)
    redis.call('HINCRBY', counts, webhook, size)
    reindex(index, due, webhook)
    key, at = key + 3, at + 4 + size
  end
  return key, at
end

