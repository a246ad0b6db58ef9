-- Judges and settles the charges of one request, in one atomic step at one instant. It is the twin of enforce.Settle,
-- whose comments are the law; packages tokenbucket and slidingwindow have the arithmetic and worked examples. All numbers
-- are integers below 2^53, so exact; a quotient of two of them is never rounded across an integer.
--
-- KEYS     the distinct counters. A token bucket holds struct.pack('>dd', level, time), a sliding window
--          struct.pack('>ddd', current, previous, time): what was spent, never what is left, and when (in ticks).
-- ARGV[1]  the instant in microseconds, or -1 for this server's clock. With an instant given (tests), keys live an hour
--          longer than they need: the instants of a test run at another pace than the clock that expires keys.
-- ARGV[2…] twelve numbers a charge: rule, version, flags (1 what-if, 2 owns its actual counter, 4 sliding window), cost,
--          amount, burst, ceiling, window (ticks), tick (µs), as positions in KEYS the deciding and the actual
--          counter, and the ceiling with which an owner stores the actual one.
-- Returns  the number of stale states dropped, then for each charge: fits (0 or 1), left, wait (ticks, -1 never; of a
--          charge that was taken the ticks until more is left).
--
-- Example: one binding charge of cost 1 against 6 per 60 s with burst 6 (W = 60,000 ticks of 1 ms). Six calls at 0 s
-- leave level 360,000, which is stored to live 60,000 ms. The seventh finds 360,000 + 60,000 > 6 * 60,000 and returns
-- {0, 0, 0, 10000}: 60,000 units drain in 10,000 ticks, at 6 a tick. Nothing is written.

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local now, slack = tonumber(ARGV[1]), 3600000
if now < 0 then
  local t = redis.call('TIME')
  now, slack = t[1] * 1000000 + t[2], 0
end

-- The stored states: what was spent, what was spent in the window before (sliding only), and the time.
local spent, before, time = {}, {}, {}
for k, raw in ipairs(redis.call('MGET', unpack(KEYS))) do
  if raw and #raw == 24 then
    spent[k], before[k], time[k] = struct.unpack('>ddd', raw)
  elseif raw then
    spent[k], time[k] = struct.unpack('>dd', raw)
    before[k] = 0
  end
end

local charges, count = {}, 0
for a = 2, #ARGV, 12 do
  local flags = tonumber(ARGV[a + 2])
  local tick = tonumber(ARGV[a + 8])
  count = count + 1
  charges[count] = {
    rule = ARGV[a], version = ARGV[a + 1], whatif = flags % 2 == 1, owns = flags % 4 >= 2, sliding = flags >= 4,
    cost = tonumber(ARGV[a + 3]), amount = tonumber(ARGV[a + 4]), burst = tonumber(ARGV[a + 5]),
    ceiling = tonumber(ARGV[a + 6]), window = tonumber(ARGV[a + 7]), tick = tick, now = floor(now / tick),
    decides = tonumber(ARGV[a + 9]), actual = tonumber(ARGV[a + 10]), keep = tonumber(ARGV[a + 11]),
  }
end

-- The arithmetic, for the numbers of charge c and a state s, b, t (spent, before, time).

local function emptyIn(c, s) -- an amount of 0 never drains: as the slowest amount would
  return ceil(s / max(1, c.amount))
end

local function read(c, s, b, t, ceiling) -- spent, before, time, stale
  ceiling = ceiling or c.ceiling
  if not s then return 0, 0, c.now, 0 end
  if t > c.now + c.window then return 0, 0, c.now, 1 end
  local at = max(c.now, t)
  if c.sliding then
    s, b = min(s, ceiling), min(b, ceiling)
    local windows = floor(at / c.window) - floor(t / c.window)
    if windows == 1 then
      s, b = 0, s
    elseif windows > 1 then
      s, b = 0, 0
    end
    return s, b, at, 0
  end
  s = min(s, ceiling * c.window)
  if at - t >= emptyIn(c, s) and at > t then return 0, 0, at, 0 end
  return s - (at - t) * c.amount, 0, at, 0
end

local function used(c, s, b, t) -- in units of 1/W
  if c.sliding then return b * (c.window - t % c.window) + s * c.window end
  return s
end

local function fits(c, s, b, t)
  return c.amount > 0 and c.cost <= c.burst
    and (c.cost < 0 or used(c, s, b, t) + c.cost * c.window <= c.burst * c.window)
end

local function spend(c, s, ceiling)
  ceiling = ceiling or c.ceiling
  if c.sliding then return max(0, min(s + min(c.cost, c.burst), 2 * ceiling)) end
  return max(0, min(s + max(min(c.cost, c.burst), -2 * ceiling) * c.window, 2 * ceiling * c.window))
end

local function left(c, s, b, t)
  if c.amount == 0 then return 0 end
  return floor(max(0, c.burst * c.window - used(c, s, b, t)) / c.window)
end

-- The ticks of a window that must pass until no more than room of the window before it counts.
local function passed(c, previous, room)
  return max(0, c.window - floor(room * c.window / previous))
end

local function wait(c, s, b, t)
  if c.amount == 0 or c.cost > c.burst then return -1 end
  if fits(c, s, b, t) then return 0 end
  if not c.sliding then
    return t - c.now + ceil((s + c.cost * c.window - c.burst * c.window) / c.amount)
  end
  local start = t - t % c.window
  local room = c.amount - s - c.cost
  if room >= 0 then return start + passed(c, b, room) - c.now end
  return start + c.window + passed(c, s, c.amount - c.cost) - c.now
end

local function untilMore(c, s, b, t, than) -- 0 when all is left
  local cost = c.cost
  c.cost = than + 1
  local ticks = wait(c, s, b, t)
  c.cost = cost
  return max(0, ticks)
end

local function expiry(c, s, b, t)
  if c.sliding then
    local start = t - t % c.window
    if s > 0 then return start + 2 * c.window - c.now end
    if b > 0 then return start + c.window - c.now end
    return 0
  end
  s = min(s, c.ceiling * c.window)
  if s == 0 then return 0 end
  return t - c.now + emptyIn(c, s)
end

-- A lifetime is rounded up to milliseconds and never below one: no key without expiry exists.
local function set(call, c, key, s, b, t, ticks)
  local value = c.sliding and struct.pack('>ddd', s, b, t) or struct.pack('>dd', s, t)
  local ms = max(1, ceil(ticks * c.tick / 1000)) + slack
  return call('SET', KEYS[key], value, 'PX', min(ms, 9007199254740991))
end

-- Judge.

local reply = {0}
local refusing, refusals, unfit = {}, 0, {}
for i, c in ipairs(charges) do
  c.from = c.decides
  if not spent[c.from] and c.from ~= c.actual then
    c.first, c.from = true, c.actual
  end
  local stale
  c.s, c.b, c.t, stale = read(c, spent[c.from], before[c.from], time[c.from])
  reply[1] = reply[1] + stale
  local ok = fits(c, c.s, c.b, c.t)
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = ok and 1 or 0, left(c, c.s, c.b, c.t), wait(c, c.s, c.b, c.t)
  if not ok then
    unfit[c.version] = true
    if not c.whatif and not refusing[c.rule] then
      refusing[c.rule], refusals = true, refusals + 1
    end
  end
end
local admitted = refusals == 0

local function tell(i, c, s, b, t) -- what charge i leaves, which was taken
  local n = left(c, s, b, t)
  reply[3 * i], reply[3 * i + 1] = n, untilMore(c, s, b, t, n)
end

-- Settle the actual counters: all of them or none. After holds each counter as it stands then.

local after = {}
for k in pairs(spent) do after[k] = {spent[k], before[k], time[k]} end
if admitted then
  for _, c in ipairs(charges) do
    if c.owns then
      local s, b, t = read(c, spent[c.actual], before[c.actual], time[c.actual], c.keep)
      after[c.actual] = {spend(c, s, c.keep), b, t}
    end
  end
  for i, c in ipairs(charges) do
    if c.owns then
      local s, b, t = unpack(after[c.actual])
      local ticks = 0
      for _, reader in ipairs(charges) do
        if reader.actual == c.actual then ticks = max(ticks, expiry(reader, s, b, t)) end
      end
      set(redis.call, c, c.actual, s, b, t, ticks)
      if c.decides == c.actual then tell(i, c, spend(c, c.s), c.b, c.t) end
    end
  end
end

-- Settle the what-if counters. An error here (no memory left) must not void the answer above.

for i, c in ipairs(charges) do
  if c.decides ~= c.actual then
    local taken = admitted
    if c.whatif then
      taken = not unfit[c.version] and (refusals == 0 or refusals == 1 and refusing[c.rule])
    end
    if taken or admitted or (c.first and spent[c.actual]) then
      local s, b, t = c.s, c.b, c.t
      if taken then
        s = spend(c, s)
        tell(i, c, s, b, t)
      end
      local a = after[c.actual] or {}
      local actualS, actualB, actualT = read(c, a[1], a[2], a[3])
      local ticks = max(expiry(c, s, b, t), expiry(c, actualS, actualB, actualT))
      if not taken then -- written as it was
        s, b, t = spent[c.from] or 0, before[c.from] or 0, time[c.from] or 0
      end
      set(redis.pcall, c, c.decides, s, b, t, ticks)
    end
  end
end

return reply
