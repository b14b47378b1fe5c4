-- Library in front of the script that appends, after that of fields: lists and indexes.
-- each: calls a command with the arguments from `from` to `to`; Lua's stack takes some thousands.
local function each(command, key, from, to)
  for i = from, to, 1000 do
    redis.call(command, key, unpack(ARGV, i, math.min(i + 999, to)))
  end
end

-- index: sets a field that has changed, and writes its entry in the sorted set of that key; '' for none.
local function index(key, field, was, is, score, id)
  if was == is then return end
  set(field, is)
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

