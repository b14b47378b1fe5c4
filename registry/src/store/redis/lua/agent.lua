-- Makes a revision the newest of a name, or deletes the name.
-- KEYS: newest, revisions, the call's outcome, responses, expiries, decisions
-- ARGV: name, revision or '', definition, now or ''; the responses
-- Returns 1 if the name was there, else 0; the same answer again for the same call.
local name, revision, definition, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local outcome = earlier(KEYS[3])
if outcome then return outcome end
local was_there = remember(KEYS[3], redis.call('HEXISTS', KEYS[1], name))
if revision == '' then
  redis.call('HDEL', KEYS[1], name)
  redis.call('UNLINK', KEYS[6])
else
  redis.call('HSET', KEYS[2], revision, definition)
  redis.call('HSET', KEYS[1], name, revision)
end
if now ~= '' then prune(KEYS[4], KEYS[5], now) end
keep(KEYS[4], KEYS[5], 5)
return was_there
