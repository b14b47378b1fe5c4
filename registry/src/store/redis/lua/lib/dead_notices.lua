-- Library in front of the script that ends notices, after that of notices.
-- bury: keeps a dead notice under its name, and forgets the oldest beyond the maximum.
local function bury(dead, deaths, name, at, notice, max)
  redis.call('HSET', dead, name, notice)
  redis.call('ZADD', deaths, at, name)
  for _, old in ipairs(redis.call('ZRANGE', deaths, 0, -1 - max)) do
    redis.call('HDEL', dead, old)
    redis.call('ZREM', deaths, old)
  end
end

