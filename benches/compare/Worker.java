import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * The worker of Curator: {@code java Worker PEER URL FOLDER NUMBER LEASE_MS STEPS SECONDS}, as benches/compare/worker
 * has it. Java reads the monotonic clock; OFFSET is what CLOCK_BOOTTIME is ahead of it.
 */
public final class Worker {
    private static final int ENTRIES = 50_000;
    private static final long STEP = 10;
    private static final long OFFSET = Long.parseLong(System.getenv("OFFSET"));

    private final PrintWriter log;
    private final Path stay;
    private final int steps;
    private int entries;

    private Worker(String folder, String number, int steps) throws IOException {
        this.steps = steps;
        stay = Path.of(folder, number + ".stay");
        log = new PrintWriter(Files.newBufferedWriter(Path.of(folder, number + ".log")));
    }

    private void write(String event, String text) {
        log.println(System.nanoTime() + OFFSET + " " + event + " " + text.replace('\n', ' '));
        // Without work under the lock the lines stay in memory: the time to write them would be measured, too.
        if (steps > 0) {
            log.flush();
        }
    }

    private void section(AtomicBoolean held) throws InterruptedException {
        entries++;
        write("in", "");
        for (int done = 0; done < steps || (steps > 0 && Files.exists(stay)); done++) {
            Thread.sleep(STEP);
            if (!held.get()) {
                write("lost", "");
                return;
            }
            write("work", "");
        }
        write("out", "");
    }

    public static void main(String[] orders) throws Exception {
        int lease = Integer.parseInt(orders[4]);
        long end = System.nanoTime() + 1_000_000_000L * Integer.parseInt(orders[6]);
        Worker worker = new Worker(orders[2], orders[3], Integer.parseInt(orders[5]));
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                orders[1].substring(orders[1].indexOf("//") + 2), lease, lease, new ExponentialBackoffRetry(1000, 3));
        // As its documentation asks: a lock counts as lost once the connection is suspended.
        AtomicBoolean held = new AtomicBoolean();
        client.getConnectionStateListenable().addListener((curator, state) -> {
            if (!state.isConnected()) {
                held.set(false);
            }
        });
        client.start();
        client.blockUntilConnected();
        InterProcessMutex mutex = new InterProcessMutex(client, "/hot");
        while (System.nanoTime() < end && (worker.steps > 0 || worker.entries < ENTRIES)) {
            worker.write("wait", "");
            try {
                held.set(true);
                mutex.acquire();
                try {
                    worker.section(held);
                } finally {
                    mutex.release();
                }
            } catch (Exception error) {
                worker.write("error", error.toString());
                Thread.sleep(STEP);
            }
        }
        worker.log.flush();
        System.exit(0);
    }
}
