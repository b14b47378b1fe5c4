-- Library in front of the scripts that read a conversation, after the one that reads a page.
-- load: reads the cached state of a conversation and the first page of the events after it.
-- wanted_format: the format that the cache must have; '' for all events and no cache
-- Returns nothing where there is no conversation; else its seq, its epoch, the cached state or '',
-- the events, and the data key or ''.
local function load(seq, epoch, journal, cache, wanted_format, max_bytes, key)
  if not seq then return false end
  local cached = wanted_format ~= '' and redis.call('GET', cache) or ''
  local format, after, state = cached:match('^(%d+) (%d+) (.*)$')
  if format ~= wanted_format or tonumber(after) > tonumber(seq) then after, state = '0', '' end
  local last = redis.call('LLEN', journal) - 1
  local events = page(journal, tonumber(after), last, tonumber(max_bytes))
  return {seq, epoch or '', state, events, key or ''}
end

