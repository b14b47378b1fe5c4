-- Reads the next page of a journal.
-- KEYS: conversation, journal
-- ARGV: the epoch that the conversation must still have, or ''; the indexes of the first event and
--   of the last one that is wanted; the bytes of a page
-- Returns the events; nothing where the epoch is another one.
local epoch, first, last, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if epoch ~= '' and redis.call('HGET', KEYS[1], 'epoch') ~= epoch then return false end
return page(KEYS[2], first, last, max_bytes)
