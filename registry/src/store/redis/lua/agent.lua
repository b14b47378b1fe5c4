-- Makes a revision the newest of a name, or deletes the name.
-- KEYS: newest, revisions, the call's outcome, responses, expiries, decisions; the chains
-- ARGV: name, revision or '', definition, now or '', the newest revision that is expected ('' for
--   none, '*' for any); the responses; the chains
-- Returns 1 if the name was there, else 0; the same answer again for the same call. Returns 2 and
-- writes nothing if another revision is the newest, and 3 if a chain has another end.
local name, revision, definition, now, expected = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local outcome = earlier(KEYS[3])
if outcome then return outcome end
if expected ~= '*' and expected ~= (redis.call('HGET', KEYS[1], name) or '') then return 2 end
if not follows() then return 3 end
local was_there = redis.call('HEXISTS', KEYS[1], name)
if revision ~= '' or was_there == 1 then record() end
remember(KEYS[3], was_there)
if revision == '' then
  redis.call('HDEL', KEYS[1], name)
  redis.call('UNLINK', KEYS[6])
else
  redis.call('HSET', KEYS[2], revision, definition)
  redis.call('HSET', KEYS[1], name, revision)
end
if now ~= '' then prune(KEYS[4], KEYS[5], now) end
keep(KEYS[4], KEYS[5], 6)
return was_there
