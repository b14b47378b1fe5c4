-- Claims a conversation, and reads it if the claim was won. Counts the death of the holder before,
-- if the conversation was at work.
-- KEYS: conversation, floor, journal, state
-- ARGV: the four of a claim, the format that the cached state must have, the bytes of a page
-- Returns the claim after the call, what was read, how many deaths are counted, and the alarm, the
--   active mark, the entry in lists and the entries in queues, each '' for none.
local me, incarnation, format, max_bytes = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local before = redis.call('HMGET', KEYS[1],
  'node', 'incarnation', 'epoch', 'seq', 'active', 'deaths', 'key', 'alarm', 'listed', 'queued')
local held, seq, deaths = claim(before), before[4], tonumber(before[6] or '0')
local won = held[1] == me and held[2] == incarnation
if not won then return {held, false, 0, {'', '', '', ''}} end
local is_successor = before[1] and not (before[1] == me and before[2] == incarnation)
if is_successor and before[5] == '1' then
  deaths = redis.call('HINCRBY', KEYS[1], 'deaths', 1)
end
local loaded = load(seq, held[3], KEYS[3], KEYS[4], format, max_bytes, before[7])
return {held, loaded, deaths, {before[8] or '', before[5] or '', before[9] or '', before[10] or ''}}
