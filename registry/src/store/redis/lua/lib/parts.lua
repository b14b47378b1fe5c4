-- Library in front of the script that appends, after the one of fencing.
-- each: calls a command with the arguments from `from` to `to`; Lua's stack takes some thousands.
local function each(command, key, from, to)
  for i = from, to, 1000 do
    redis.call(command, key, unpack(ARGV, i, math.min(i + 999, to)))
  end
end

-- index: stores a field that has changed, and its entry in the sorted set of that key; '' for none.
local function index(key, field, was, is, score, id)
  if was == is then return end
  redis.call('HSET', KEYS[1], field, is)
  if is ~= '' then redis.call('ZADD', KEYS[key], score, id)
  elseif was then redis.call('ZREM', KEYS[key], id) end
end

-- write_inbox: removes the entries of closed suspensions and adds those of opened ones. Returns the
--   index of the argument after them.
local function write_inbox(suspensions, open, at)
  local closed, opened = at + 2, at + 2 + ARGV[at]
  local last = opened + 2 * ARGV[at + 1]
  each('ZREM', open, closed, opened - 1)
  each('HDEL', suspensions, closed, opened - 1)
  for i = opened, last - 1, 2 do redis.call('ZADD', open, 0, ARGV[i]) end
  each('HSET', suspensions, opened, last - 1)
  return last
end

-- write_parts: writes what few commits have, from this key and this argument on.
local function write_parts(parts, key, at, id)
  if parts:find('n') then
    redis.call('ZADD', KEYS[key], 0, id)
    redis.call('HSET', KEYS[1], 'agent', ARGV[at])
    if ARGV[at + 1] ~= '' then redis.call('HSET', KEYS[1], 'metadata', ARGV[at + 1]) end
    if ARGV[at + 2] ~= '' then redis.call('HSET', KEYS[1], 'participants', ARGV[at + 2]) end
    key, at = key + 1, at + 3
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
    keep(KEYS[key], KEYS[key + 1], at + 1)
  end
end

