-- Makes a revision the newest of a name, or deletes the name.
-- KEYS: newest, revisions, the call's outcome, responses, expiries, decisions, history; the chains
-- ARGV: name, revision or '', definition, now or '', the newest revision that is expected ('' for
--   none, '*' for any), when it is put; the responses; the chains
-- Returns 1 if the name was there, else 0; the same answer again for the same call. Returns 2 and
-- writes nothing if another revision is the newest, and 3 if a chain has another end.
local name, revision, definition, now, expected = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local outcome = earlier(KEYS[3])
if outcome then return outcome end
local newest, rollout = unpack(redis.call('HMGET', KEYS[1], name, name .. ' rollout'))
if expected ~= '*' and expected ~= (newest or '') then return 2 end
if not follows() then return 3 end
local was_there = newest and 1 or 0
local last = redis.call('ZRANGE', KEYS[7], -1, -1, 'WITHSCORES')
if revision ~= '' or was_there == 1 then record() end
remember(KEYS[3], was_there)
if revision == '' then
  redis.call('HDEL', KEYS[1], name, name .. ' rollout')
  redis.call('UNLINK', KEYS[6])
else
  redis.call('HSET', KEYS[2], revision, definition)
  redis.call('HSET', KEYS[1], name, revision)
  -- A rollout of the newest revision is over, and so is one from before a deletion.
  if rollout and (not newest or rollout:match('^%S+') == revision) then
    redis.call('HDEL', KEYS[1], name .. ' rollout')
  end
  -- An earlier version of the program put it, and noted no time.
  if newest and not last[1] then redis.call('ZADD', KEYS[7], 0, newest) end
  local score = tonumber(ARGV[6]) or 1
  local after = last[2] and tonumber(last[2]) + 1 or 1
  if score < after then score = after end -- the order holds whatever the clocks
  redis.call('ZADD', KEYS[7], string.format('%.0f', score), revision)
end
if now ~= '' then prune(KEYS[4], KEYS[5], now) end
keep(KEYS[4], KEYS[5], 7)
return was_there
