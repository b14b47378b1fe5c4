-- Library in front of the scripts that end a claim for ever.
-- raise: sets the partition's floor so that no later claim is given `epoch` again.
local function raise(floor, epoch)
  if tonumber(redis.call('GET', floor) or '0') < tonumber(epoch) then
    redis.call('SET', floor, epoch)
  end
end

