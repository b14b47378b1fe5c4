-- Removes revisions of a name, except the newest, that of a rollout, and those that were put last.
-- KEYS: newest, revisions, history
-- ARGV: name, how many that were put last stay, then the revisions
-- Returns how many were removed; a repeat removes nothing more.
local stays = {}
local last = ARGV[2] ~= '0' and redis.call('ZRANGE', KEYS[3], -ARGV[2], -1) or {}
for _, revision in ipairs(last) do stays[revision] = true end
for _, field in ipairs({ARGV[1], ARGV[1] .. ' rollout'}) do
  stays[(redis.call('HGET', KEYS[1], field) or ''):match('^%S*')] = true
end
local removed = 0
for i = 3, #ARGV do
  if not stays[ARGV[i]] and redis.call('ZREM', KEYS[3], ARGV[i]) == 1 then
    redis.call('HDEL', KEYS[2], ARGV[i])
    removed = removed + 1
  end
end
return removed
