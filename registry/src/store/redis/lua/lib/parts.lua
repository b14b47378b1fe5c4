-- Library in front of the script that appends, after those of fencing, fields, indexes, lists and usage.
-- write_parts: writes what few commits have, from this key and this argument on.
local function write_parts(parts, key, at, id, queued, listed)
  if parts:find('r') then
    prune(KEYS[key], KEYS[key + 1], ARGV[at])
    at = keep(KEYS[key], KEYS[key + 1], at + 1)
    key = key + 2
  end
  if parts:find('n') then
    redis.call('ZADD', KEYS[key], 0, id)
    set('agent', ARGV[at])
    key, at = key + 1, at + 1
  end
  if parts:find('[la]') then
    local write = parts:find('l') and list or touch
    key, at = key + 1, write(KEYS[key], id, listed, at)
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
  if parts:find('k') then set('key', ARGV[at]); at = at + 1 end
  if parts:find('o') then
    at = write_inbox(KEYS[key], KEYS[key + 1], at)
    key = key + 2
  end
  if parts:find('q') then
    at = requeue(KEYS[key], at, queued)
    key = key + 1
  end
  if parts:find('w') then write_owed(key, at) end
end

