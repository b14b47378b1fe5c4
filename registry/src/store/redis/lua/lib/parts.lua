-- Library in front of the script that appends, after those of fencing, indexes and usage.
-- write_parts: writes what few commits have, from this key and this argument on.
local function write_parts(parts, key, at, id, queued)
  if parts:find('n') then
    redis.call('ZADD', KEYS[key], 0, id)
    redis.call('HSET', KEYS[1], 'agent', ARGV[at])
    if ARGV[at + 1] ~= '' then redis.call('HSET', KEYS[1], 'metadata', ARGV[at + 1]) end
    if ARGV[at + 2] ~= '' then redis.call('HSET', KEYS[1], 'participants', ARGV[at + 2]) end
    key, at = key + 1, at + 3
  end
  if parts:find('t') then
    redis.call('SADD', KEYS[key], ARGV[at])
    key, at = key + 1, at + 1
  end
  if parts:find('s') then
    redis.call('SET', KEYS[key], ARGV[at])
    key, at = key + 1, at + 1
  end
  if parts:find('d') then redis.call('HDEL', KEYS[1], 'deaths') end
  if parts:find('o') then
    at = write_inbox(KEYS[key], KEYS[key + 1], at)
    key = key + 2
  end
  if parts:find('r') then
    prune(KEYS[key], KEYS[key + 1], ARGV[at])
    at = keep(KEYS[key], KEYS[key + 1], at + 1)
    key = key + 2
  end
  if parts:find('q') then
    at = requeue(KEYS[key], at, queued)
    key = key + 1
  end
  if parts:find('w') then write_owed(key, at) end
end

