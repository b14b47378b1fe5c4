-- Library in front of the membership scripts. Their KEYS: members, when each was last seen, the
-- dead, the last process of each name. All times are this server's, in milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- silence: for how long a member has not been heard of.
local function silence(name)
  return math.max(0, now - tonumber(redis.call('ZSCORE', KEYS[2], name) or now))
end

-- remember_dead: remembers a dead incarnation or process; ten thousand are a year of restarts.
local function remember_dead(kind, name, id)
  redis.call('ZADD', KEYS[3], now, kind .. name .. '/' .. id)
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -10001)
end

-- remove: ends the membership of an incarnation for ever.
local function remove(name, incarnation)
  remember_dead('incarnation ', name, incarnation)
  redis.call('HDEL', KEYS[1], name)
  redis.call('ZREM', KEYS[2], name)
end

-- alive: the clock, then each member and for how long it has been silent.
local function alive()
  local rows = redis.call('HGETALL', KEYS[1])
  for i = 1, #rows, 2 do rows[i], rows[i + 1] = rows[i + 1], tostring(silence(rows[i])) end
  table.insert(rows, 1, string.format('%.0f', now))
  return rows
end

