-- Library in front of the scripts that read a journal.
-- page: the events of a journal from index `first` to `last`, as many as exceed `max_bytes` or as
--   there are. It reads eight at a time at most, because a server that sends a megabyte serves
--   nobody else, and how long an event is shows only when it is read.
local function page(journal, first, last, max_bytes)
  local events, bytes, count = {}, 0, 1
  while first <= last and bytes < max_bytes do
    local some = redis.call('LRANGE', journal, first, math.min(first + count, last + 1) - 1)
    if #some == 0 then break end
    for _, event in ipairs(some) do
      table.insert(events, event)
      bytes = bytes + #event
    end
    first = first + #some
    local that_fit = math.floor((max_bytes - bytes) * #events / math.max(1, bytes))
    count = math.max(1, math.min(8, that_fit))
  end
  return events
end

