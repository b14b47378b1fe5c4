-- Library in front of the membership scripts. Their KEYS: members, when each was last seen, the
-- dead, the last process of each name, the excused: members whose silence was forgiven since they
-- were last heard. All times are this server's, in milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- seen: when each member was last heard of. It is read at once: each member renews every second, and
-- a command for each of the others would be a thousand a second of thirty.
local seen, scores = {}, redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #scores, 2 do seen[scores[i]] = tonumber(scores[i + 1]) end

-- silence: for how long a member has not been heard of.
local function silence(name)
  return math.max(0, now - (seen[name] or now))
end

-- set_seen: notes when a member was last heard of.
local function set_seen(name, at)
  redis.call('ZADD', KEYS[2], at, name)
  seen[name] = at
end

-- see: notes that a member is heard of now.
local function see(name)
  set_seen(name, now)
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

-- alive: the clock, a digest of the members, and for how long each has been silent; then the members,
--   unless their digest is `known`: the answer for thirty that do not change has 0.3 kB, not 12.
local function alive(known)
  local rows, silences, entries = redis.call('HGETALL', KEYS[1]), {}, {}
  for i = 1, #rows, 2 do
    table.insert(silences, silence(rows[i]))
    table.insert(entries, rows[i + 1])
  end
  local digest = redis.sha1hex(table.concat(entries))
  local answer = {string.format('%.0f', now), digest, table.concat(silences, ' ')}
  for i = 1, digest == known and 0 or #entries do answer[i + 3] = entries[i] end
  return answer
end
