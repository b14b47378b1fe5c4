-- load: reads the cached state of a conversation and the events after it.
-- wanted: the format that the cache must have; '' for all events and no cache
-- Returns nothing where there is no conversation; else its seq, the cached state or '', its events.
local function load(conversation, journal, states, wanted)
  local seq = redis.call('HGET', conversation, 'seq')
  if not seq then return false end
  local cached = wanted ~= '' and redis.call('GET', states) or ''
  local format, after, state = cached:match('^(%d+) (%d+) (.*)$')
  if format ~= wanted or tonumber(after) > tonumber(seq) then after, state = '0', '' end
  return {seq, state, redis.call('LRANGE', journal, after, -1)}
end

