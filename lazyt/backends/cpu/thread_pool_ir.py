"""The LLVM IR of the thread pool that programs run on; `thread_pool.py` compiles and calls it.

    state     generation << 32 | next chunk of the open region; chunk 0xffffffff: closed to claims
    done      chunks of the region that have been run; the caller waits for done == total

The caller closes the state, writes the region (rows, table, total), opens it under the next
generation and works too. A worker claims a chunk by moving `state` on by one. A claim that succeeds
proves that the region which the worker read is the one that is open: the generation is part of the
word, and a region is written only while closed. Idle workers watch the generation for a while, then
sleep on it (a futex on the upper half of `state`). To wake one takes up to 150 us on a virtual machine, so the while is
longer than what Python does between the syncs of a loop.

    avoided   the CPU that workers are kept off: the caller's when it last opened a region

On virtual machines an idle CPU often looks busy, and some systems pack threads on few CPUs: a worker that is woken
there is queued behind its caller, and joins the caller's region milliseconds late. So the caller takes its own
CPU out of the workers' affinity when it opens a region on another one than before, if it may use enough others; and
gives it back before it sleeps, so that a worker which waits for its own CPU can have it.

It is one module of IR with what a platform gives (thread_platform_ir.py) and what Python calls (program_driver_ir.py).
"""

from __future__ import annotations

import hashlib
from string import Template

from lazyt.backends.cpu.codegen.needs import FRAME, LIBRARY_FRAME
from lazyt.backends.cpu.program_driver_ir import DRIVER, VALUES
from lazyt.backends.cpu.thread_platform_ir import Platform, pause_of, platform_text
from lazyt.backends.cpu.workspace import WORKSPACE

MAX_WORKERS = 255
# Bytes of a worker's stack; some systems' own choice is less. Its workspace, what a kernel may need on top of a product
# that calls it as its epilogue, and as much again for whatever else is native (BLAS).
STACK = 2 * (FRAME + LIBRARY_FRAME + WORKSPACE)
ROW_FIELDS = 5
# Nanoseconds that a worker watches for the next region, or a caller for the last chunks of its own, before it sleeps.
WATCH = 200_000
# Looks between two looks at the clock. NOTE: a pause takes 10 to 50 ns: what is counted in pauses is no time.
LOOKS = 128
# More workers than these have others to take their chunks, and to move them all takes long.
MAX_PLACED = 15

_POOL = """
@state = internal global i64 4294967295, align 128
@done = internal global i32 0, align 128
@waiting = internal global i32 0, align 4
@sleepers = internal global i32 0, align 128
@rows = internal global ptr null, align 128
@table = internal global ptr null, align 8
@total = internal global i64 0, align 8
@busy = internal global i32 0, align 128
@stop = internal global i32 0, align 4
@avoided = internal global i32 -1, align 4
@wanted = internal global i64 0, align 8
@workers = internal global i64 0, align 8
@threads = internal global [$MAX_WORKERS x i64] zeroinitializer, align 8
@attributes = internal global [32 x i64] zeroinitializer, align 16 ; no system's are larger
@blocked = internal constant [$SIGNAL_BYTES x i8] c"$SIGNALS", align 8

declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)

; how many chunks a row has: ceil(units / grain), one if there is no grain
define internal i64 @chunks(ptr %row) nounwind {
  %units.at = getelementptr i64, ptr %row, i64 2
  %units = load i64, ptr %units.at
  %some = icmp sgt i64 %units, 0
  br i1 %some, label %count, label %none
none:
  ret i64 0
count:
  %grain.at = getelementptr i64, ptr %row, i64 3
  %grain = load i64, ptr %grain.at
  %fits = icmp sle i64 %units, %grain
  %whole = icmp sle i64 %grain, 0
  %single = or i1 %fits, %whole
  br i1 %single, label %one, label %divide
one:
  ret i64 1
divide:
  %less = sub i64 %units, 1
  %full = udiv i64 %less, %grain
  %n = add i64 %full, 1
  ret i64 %n
}

; run units [begin, end) of a row; %workspace is a worker's, or null on the calling thread
define internal void @launch(ptr %row, ptr %table, i64 %begin, i64 %end, ptr %workspace) nounwind {
  %kernel = load ptr, ptr %row
  %offset.at = getelementptr i64, ptr %row, i64 1
  %offset = load i64, ptr %offset.at
  %args = getelementptr i64, ptr %table, i64 %offset
  call void %kernel(ptr %args, i64 %begin, i64 %end, ptr %workspace)
  ret void
}

; run rows whole, in order, on this thread
define internal void @serial(ptr %rows, i64 %n, ptr %table) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %latch ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %out
body:
  %row = getelementptr [5 x i64], ptr %rows, i64 %i
  %units.at = getelementptr i64, ptr %row, i64 2
  %units = load i64, ptr %units.at
  %some = icmp sgt i64 %units, 0
  br i1 %some, label %run, label %latch
run:
  call void @launch(ptr %row, ptr %table, i64 0, i64 %units, ptr null)
  br label %latch
latch:
  %next = add i64 %i, 1
  br label %head
out:
  ret void
}

; claim and run chunks of the region of generation %gen until none is left
define internal void @work(i64 %gen, ptr %workspace) nounwind {
entry:
  %rows = load atomic ptr, ptr @rows acquire, align 8
  %table = load atomic ptr, ptr @table acquire, align 8
  %total = load atomic i64, ptr @total acquire, align 8
  br label %claim
claim:
  %row.from = phi ptr [ %rows, %entry ], [ %row.from, %try ], [ %row, %ran ]
  %first.from = phi i64 [ 0, %entry ], [ %first.from, %try ], [ %first, %ran ]
  %word = load atomic i64, ptr @state acquire, align 8
  %gen.now = lshr i64 %word, 32
  %same = icmp eq i64 %gen.now, %gen
  br i1 %same, label %check, label %out
check:
  %chunk = and i64 %word, 4294967295
  %left = icmp ult i64 %chunk, %total
  br i1 %left, label %try, label %out
try:
  %word.next = add i64 %word, 1
  %swap = cmpxchg ptr @state, i64 %word, i64 %word.next acq_rel acquire
  %ok = extractvalue { i64, i1 } %swap, 1
  br i1 %ok, label %locate, label %claim
locate:
  %row = phi ptr [ %row.from, %try ], [ %row.next, %skip ]
  %first = phi i64 [ %first.from, %try ], [ %first.next, %skip ]
  %n = call i64 @chunks(ptr %row)
  %first.next = add i64 %first, %n
  %here = icmp ult i64 %chunk, %first.next
  br i1 %here, label %run, label %skip
skip:
  %row.next = getelementptr [5 x i64], ptr %row, i64 1
  br label %locate
run:
  %units.at = getelementptr i64, ptr %row, i64 2
  %units = load i64, ptr %units.at
  %grain.at = getelementptr i64, ptr %row, i64 3
  %grain = load i64, ptr %grain.at
  %index = sub i64 %chunk, %first
  %begin = mul i64 %index, %grain
  %rest = sub i64 %units, %begin
  %size = call i64 @llvm.smin.i64(i64 %rest, i64 %grain)
  %single = icmp eq i64 %n, 1
  %count = select i1 %single, i64 %units, i64 %size
  %start = select i1 %single, i64 0, i64 %begin
  %end = add i64 %start, %count
  call void @launch(ptr %row, ptr %table, i64 %start, i64 %end, ptr %workspace)
  br label %ran
ran:
  %done.old = atomicrmw add ptr @done, i32 1 seq_cst
  %done.now = add i32 %done.old, 1
  %done.wide = zext i32 %done.now to i64
  %all = icmp eq i64 %done.wide, %total
  br i1 %all, label %last, label %claim
last:
  %waits = load atomic i32, ptr @waiting seq_cst, align 4
  %waited = icmp ne i32 %waits, 0
  br i1 %waited, label %tell, label %out
tell:
  call void @wake(ptr @done, i64 1)
  br label %out
out:
  ret void
}

; pause before look number %k of a watch; when the watch ends, 0 while the clock was not asked, -1 if it is over
define internal i64 @pause(i64 %k, i64 %until) nounwind {
entry:
  $PAUSE
  %part = and i64 %k, $LOOKS_MASK
  %timed = icmp eq i64 %part, 0
  br i1 %timed, label %clock, label %on
on:
  ret i64 %until
clock:
  %now = call i64 @now()
  %first = icmp eq i64 %until, 0
  %later = add i64 %now, $WATCH
  %end = select i1 %first, i64 %later, i64 %until
  %over = icmp sge i64 %now, %end
  %found = select i1 %over, i64 -1, i64 %end
  ret i64 %found
}

define internal ptr @worker(ptr %unused) nounwind {
entry:
  %workspace = alloca i8, i64 $WORKSPACE, align 64
  %masked = call i32 @pthread_sigmask(i32 $SIG_BLOCK, ptr @blocked, ptr null)
  %float = call i64 @float_reset()
  %gen.word = getelementptr i32, ptr @state, i64 1
  br label %watch
watch:
  %seen = phi i64 [ -1, %entry ], [ %seen, %awake ], [ %gen, %serve ]
  br label %spin
spin:
  %k = phi i64 [ 0, %watch ], [ %k.next, %idle ]
  %until = phi i64 [ 0, %watch ], [ %end, %idle ]
  %word = load atomic i64, ptr @state acquire, align 8
  %gen = lshr i64 %word, 32
  %new = icmp ne i64 %gen, %seen
  br i1 %new, label %serve.or.stop, label %idle
idle:
  %k.next = add i64 %k, 1
  %end = call i64 @pause(i64 %k.next, i64 %until)
  %again = icmp ne i64 %end, -1
  br i1 %again, label %spin, label %sleep
sleep:
  %s0 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %gen.low = trunc i64 %seen to i32
  call void @wait(ptr %gen.word, i32 %gen.low)
  br label %awake
awake:
  %s1 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %watch
serve.or.stop:
  %stopped = load atomic i32, ptr @stop acquire, align 4
  %ends = icmp ne i32 %stopped, 0
  br i1 %ends, label %out, label %serve
serve:
  call void @work(i64 %gen, ptr %workspace)
  br label %watch
out:
  ret ptr null
}

; one parallel region: the caller opens it, works, and waits for the chunks that others have claimed
define internal void @region(ptr %rows, ptr %table, i64 %total) nounwind {
entry:
  call void @place()
  %old = load atomic i64, ptr @state monotonic, align 8
  %closed = or i64 %old, 4294967295
  store atomic i64 %closed, ptr @state seq_cst, align 8
  store atomic ptr %rows, ptr @rows release, align 8
  store atomic ptr %table, ptr @table release, align 8
  store atomic i64 %total, ptr @total release, align 8
  store atomic i32 0, ptr @done release, align 4
  ; closed + 1 carries into the generation: the next one, chunk 0
  %open = add i64 %closed, 1
  store atomic i64 %open, ptr @state seq_cst, align 8
  %gen = lshr i64 %open, 32
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %rouse, label %join
rouse:
  %gen.word = getelementptr i32, ptr @state, i64 1
  %helpers = sub i64 %total, 1
  %n = call i64 @llvm.smin.i64(i64 %helpers, i64 $MAX_WORKERS)
  call void @wake(ptr %gen.word, i64 %n)
  br label %join
join:
  call void @work(i64 %gen, ptr null)
  %total.low = trunc i64 %total to i32
  br label %spin
spin:
  %k = phi i64 [ 0, %join ], [ %k.next, %pause ]
  %until = phi i64 [ 0, %join ], [ %end, %pause ]
  %d = load atomic i32, ptr @done acquire, align 4
  %all = icmp eq i32 %d, %total.low
  br i1 %all, label %out, label %pause
pause:
  %k.next = add i64 %k, 1
  %end = call i64 @pause(i64 %k.next, i64 %until)
  %again = icmp ne i64 %end, -1
  br i1 %again, label %spin, label %park
park:
  call void @unplace()
  store atomic i32 1, ptr @waiting seq_cst, align 4
  br label %look
look:
  %d2 = load atomic i32, ptr @done seq_cst, align 4
  %all2 = icmp eq i32 %d2, %total.low
  br i1 %all2, label %unpark, label %sleep
sleep:
  call void @wait(ptr @done, i32 %d2)
  br label %look
unpark:
  store atomic i32 0, ptr @waiting seq_cst, align 4
  br label %out
out:
  ret void
}

; bring the workers up to the wanted number; a system that refuses a thread gets a smaller pool
define internal void @hire() nounwind {
entry:
  br label %head
head:
  %have = load i64, ptr @workers
  %want = load i64, ptr @wanted
  %more = icmp slt i64 %have, %want
  br i1 %more, label %create, label %out
create:
  %slot = getelementptr [$MAX_WORKERS x i64], ptr @threads, i64 0, i64 %have
  call i32 @pthread_attr_init(ptr @attributes)
  call i32 @pthread_attr_setstacksize(ptr @attributes, i64 $STACK)
  %failed = call i32 @pthread_create(ptr %slot, ptr @attributes, ptr @worker, ptr null)
  call i32 @pthread_attr_destroy(ptr @attributes)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %count, label %refused
count:
  %now = add i64 %have, 1
  store i64 %now, ptr @workers
  store i32 -1, ptr @avoided
  br label %head
refused:
  store i64 %have, ptr @wanted
  br label %out
out:
  ret void
}

; run rows in order, regions of several chunks on all threads; the caller holds @busy
define internal void @parallel(ptr %rows, i64 %n, ptr %table) nounwind {
entry:
  call void @hire()
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %j.next, %ran ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %gather, label %out
gather:
  %j = phi i64 [ %i, %head ], [ %j.next, %gather ]
  %sum = phi i64 [ 0, %head ], [ %sum.next, %gather ]
  %row = getelementptr [5 x i64], ptr %rows, i64 %j
  %c = call i64 @chunks(ptr %row)
  %sum.next = add i64 %sum, %c
  %joins.at = getelementptr i64, ptr %row, i64 4
  %joins = load i64, ptr %joins.at
  %joined = icmp ne i64 %joins, 0
  %j.next = add i64 %j, 1
  %within = icmp slt i64 %j.next, %n
  %on = and i1 %joined, %within
  br i1 %on, label %gather, label %decide
decide:
  %from = getelementptr [5 x i64], ptr %rows, i64 %i
  %several = icmp sgt i64 %sum.next, 1
  ; chunk numbers have 32 bits, the last of them says closed
  %counted = icmp slt i64 %sum.next, 2147483647
  %shared = and i1 %several, %counted
  br i1 %shared, label %open, label %alone
open:
  call void @region(ptr %from, ptr %table, i64 %sum.next)
  br label %ran
alone:
  %length = sub i64 %j.next, %i
  call void @serial(ptr %from, i64 %length, ptr %table)
  br label %ran
ran:
  br label %head
out:
  ret void
}

; on all threads if the pool is free, else on this thread: the results are the same
define internal void @spread(ptr %rows, i64 %n, ptr %table) nounwind {
entry:
  %want = load atomic i64, ptr @wanted monotonic, align 8
  %some = icmp sgt i64 %want, 0
  br i1 %some, label %try, label %alone
try:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acq_rel monotonic
  %ok = extractvalue { i32, i1 } %swap, 1
  br i1 %ok, label %pooled, label %alone
pooled:
  call void @parallel(ptr %rows, i64 %n, ptr %table)
  store atomic i32 0, ptr @busy release, align 4
  ret void
alone:
  call void @serial(ptr %rows, i64 %n, ptr %table)
  ret void
}

; let every worker go, and set how many the next program that wants some may have
define void @${P}_resize(i64 %want) nounwind {
entry:
  br label %lock
lock:
  %swap = cmpxchg ptr @busy, i32 0, i32 1 acq_rel monotonic
  %ok = extractvalue { i32, i1 } %swap, 1
  br i1 %ok, label %dismiss, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %lock
dismiss:
  store atomic i32 1, ptr @stop release, align 4
  %old = load atomic i64, ptr @state monotonic, align 8
  %closed = or i64 %old, 4294967295
  %next = add i64 %closed, 4294967296
  store atomic i64 %next, ptr @state seq_cst, align 8
  %gen.word = getelementptr i32, ptr @state, i64 1
  call void @wake(ptr %gen.word, i64 $MAX_WORKERS)
  %n = load i64, ptr @workers
  br label %head
head:
  %i = phi i64 [ 0, %dismiss ], [ %i.next, %join ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %join, label %out
join:
  %slot = getelementptr [$MAX_WORKERS x i64], ptr @threads, i64 0, i64 %i
  %thread = load i64, ptr %slot
  %r = call i32 @pthread_join(i64 %thread, ptr null)
  %i.next = add i64 %i, 1
  br label %head
out:
  store i64 0, ptr @workers
  store i64 %want, ptr @wanted
  store atomic i32 0, ptr @stop release, align 4
  store atomic i32 0, ptr @busy release, align 4
  ret void
}

; how many workers programs may have
define i64 @${P}_wanted() nounwind {
  %want = load atomic i64, ptr @wanted monotonic, align 8
  ret i64 %want
}

; how many workers there are
define i64 @${P}_workers() nounwind {
  %have = load i64, ptr @workers
  ret i64 %have
}

; whether programs take subnormal numbers as zeros from now on; 0 if they cannot. Workers that there are go on as before
define i64 @${P}_flush(i64 %on) nounwind {
  %able = call i64 @float_flush(i64 %on)
  ret i64 %able
}

; before the first program, and in a forked child, which has none of its parent's workers
define void @${P}_reset() nounwind {
  %old = load atomic i64, ptr @state monotonic, align 8
  %closed = or i64 %old, 4294967295
  store atomic i64 %closed, ptr @state seq_cst, align 8
  store i64 0, ptr @workers
  store i32 0, ptr @sleepers
  store i32 0, ptr @waiting
  store i32 0, ptr @stop
  store i32 0, ptr @busy
  store i32 -1, ptr @avoided
  %epoch = load i64, ptr @epoch
  %epoch.next = add i64 %epoch, 1
  store i64 %epoch.next, ptr @epoch
  call void @sleep_init()
  ret void
}
"""


def render(platform: Platform) -> tuple[str, str]:
    """The IR of the runtime for a platform, and the prefix of the names that it exports."""
    source = Template("\n".join((platform_text(platform), _POOL, DRIVER)))
    values: dict[str, object] = {
        "FUTEX": platform.futex,
        "PAUSE": pause_of(platform),
        "SIG_BLOCK": platform.sig_block,
        "SIGNAL_BYTES": len(platform.blocked_signals),
        "SIGNALS": "".join(f"\\{byte:02X}" for byte in platform.blocked_signals),
        "MAX_WORKERS": MAX_WORKERS,
        "MAX_PLACED": MAX_PLACED,
        "STACK": STACK,
        "WORKSPACE": WORKSPACE,
        "WATCH": WATCH,
        "LOOKS_MASK": LOOKS - 1,
        "CLOCK": platform.clock,
        **VALUES,
    }
    digest = hashlib.sha256(source.substitute(values, P="p").encode()).hexdigest()
    prefix = f"lazyt_runtime_{digest[:16]}"
    return source.substitute(values, P=prefix), prefix
