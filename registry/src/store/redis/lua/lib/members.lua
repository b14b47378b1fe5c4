-- Library in front of the membership scripts. Their KEYS: members, when each was last seen, the
-- dead, the last process of each name, the excused: members whose silence was forgiven since they
-- were last heard. All times are this server's, in milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- last_seen: when a member was last heard of.
local function last_seen(name)
  return tonumber(redis.call('ZSCORE', KEYS[2], name) or now)
end

-- silence: for how long a member has not been heard of.
local function silence(name)
  return math.max(0, now - last_seen(name))
end

-- see: notes that a member is heard of now.
local function see(name)
  redis.call('ZADD', KEYS[2], now, name)
  redis.call('SREM', KEYS[5], name)
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
  redis.call('SREM', KEYS[5], name)
end

-- alive: the clock, then each member and for how long it has been silent.
local function alive()
  local rows = redis.call('HGETALL', KEYS[1])
  for i = 1, #rows, 2 do rows[i], rows[i + 1] = rows[i + 1], tostring(silence(rows[i])) end
  table.insert(rows, 1, string.format('%.0f', now))
  return rows
end

