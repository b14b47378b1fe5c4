-- Library in front of the membership scripts. Their KEYS: members, when each was last seen, the
-- dead, the last process of each name, the excused: members whose silence was forgiven since they
-- were last heard. All times are this server's, in milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- entries and seen: each member, and when it was last heard of. They are read at once: each
-- member renews every second, and commands for each of the others would be thousands of thirty.
local entries, seen, rows = {}, {}, redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do entries[rows[i]] = rows[i + 1] end
local scores = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
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

-- put: stores a member.
local function put(name, entry)
  redis.call('HSET', KEYS[1], name, entry)
  entries[name] = entry
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
  entries[name] = nil
  redis.call('ZREM', KEYS[2], name)
  redis.call('SREM', KEYS[5], name)
end

-- alive: the clock, a digest of the members, and for how long each has been silent; then the
--   members themselves, unless their digest is `known`: the answer for thirty that do not change has
--   0.2 kB, not 10.
local function alive(known)
  local names, silences, listed = {}, {}, {}
  for name in pairs(entries) do table.insert(names, name) end
  table.sort(names)
  for i, name in ipairs(names) do silences[i], listed[i] = silence(name), entries[name] end
  local digest = redis.sha1hex(table.concat(listed))
  local answer = {string.format('%.0f', now), digest, table.concat(silences, ' ')}
  for i = 1, digest == known and 0 or #listed do answer[i + 3] = listed[i] end
  return answer
end
